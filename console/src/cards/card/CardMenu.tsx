import type { Card } from '../../api/types';
import { useMe } from '../../api/session';
import { IconButton } from '../../ui/Button';
import { CopyIcon, MoreIcon, PassOnIcon } from '../../ui/icons';
import { Menu, MenuItem, MenuLine } from '../../ui/Menu';
import { words } from '../../words';
import { LaterItems } from './LaterMenu';
import { copyLink } from './use-card-keys';

/** What else can be done with an open card, where there is no room for buttons. */
export function CardMenu({ card, onPassOn }: { card: Card; onPassOn: () => void }) {
  const { features } = useMe().server;
  return (
    <Menu trigger={<IconButton icon={MoreIcon} label={words.cards.menu} />}>
      {features.includes('pending.escalate') && (
        <MenuItem icon={PassOnIcon} onSelect={onPassOn}>
          {words.cards.passOn}
        </MenuItem>
      )}
      <MenuItem icon={CopyIcon} onSelect={() => void copyLink(card.id)}>
        {words.cards.link}
      </MenuItem>
      <MenuLine />
      <LaterItems card={card} />
    </Menu>
  );
}
