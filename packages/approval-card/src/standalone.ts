/** The entry of the built package: the card with styles that hold inside of it alone. */

import './styles/tokens.css';
import './styles/elements.css';

export * from './index';
