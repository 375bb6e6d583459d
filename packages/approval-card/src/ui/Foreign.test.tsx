import { act } from 'react';
import { createRoot } from 'react-dom/client';
import { afterEach, describe, expect, it } from 'vitest';

import { Foreign } from './Foreign';

const HOSTILE = [
  '<script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  '"><svg onload=alert(1)>',
  "'; DROP TABLE runs; --",
  '<!-- comment -->',
  '&lt;b&gt;',
  'javascript:alert(1)',
  '{{constructor.constructor("alert(1)")()}}',
  '<iframe srcdoc="<b>x</b>"></iframe>',
  '<style>*{display:none}</style>',
  'ﷺ'.repeat(20),
  'Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L',
];

let place: HTMLElement;

function show(element: React.ReactNode): HTMLElement {
  place = document.createElement('div');
  document.body.append(place);
  act(() => createRoot(place).render(element));
  return place;
}

afterEach(() => place.remove());

describe('text of others', () => {
  it.each(HOSTILE)('%j is text and nothing else', (text) => {
    const shown = show(<Foreign text={text} />);
    const [element] = shown.children;
    expect(shown.querySelectorAll('script, img, svg, iframe, style, b')).toHaveLength(0);
    expect(element?.textContent.replace('⟦U+034F⟧', '\u034f')).toBe(text);
    expect(element?.getAttribute('dir')).toBe('auto');
  });

  it('is one line unless it is a block', () => {
    expect(show(<Foreign text={'a\nb'} />).textContent).toBe('a b');
    expect(show(<Foreign text={'a\nb'} block />).textContent).toBe('a\nb');
  });

  it('is cut, and says how much is left', () => {
    const shown = show(<Foreign text={'x'.repeat(5 * 1024 * 1024)} />);
    expect(shown.textContent).toBe(`${'x'.repeat(300)}… 5.0 MB more`);
  });
});
