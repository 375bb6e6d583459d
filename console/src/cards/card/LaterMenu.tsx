import type { Card } from '../../api/types';
import { Button } from '../../ui/Button';
import { LaterIcon } from '../../ui/icons';
import { Menu, MenuItem } from '../../ui/Menu';
import { toast } from '../../ui/Toast';
import { words } from '../../words';
import { postpone } from '../postponed';

const HOUR = 3600;

/** Hide a card for a while, in this browser only. */
export function LaterMenu({ card }: { card: Card }) {
  return (
    <Menu
      trigger={
        <Button look="ghost" size="l" icon={LaterIcon} hint="L" data-answer="later">
          {words.cards.later}
        </Button>
      }
    >
      <LaterItems card={card} />
    </Menu>
  );
}

/** For how long to hide it. */
export function LaterItems({ card }: { card: Card }) {
  function hide(seconds: number) {
    postpone(card.id, seconds);
    toast(words.cards.postponed);
  }
  return (
    <>
      <MenuItem onSelect={() => hide(HOUR / 4)}>{words.cards.laterFor.quarter}</MenuItem>
      <MenuItem onSelect={() => hide(HOUR)}>{words.cards.laterFor.hour}</MenuItem>
      <MenuItem onSelect={() => hide(secondsUntilTomorrow())}>{words.cards.laterFor.tomorrow}</MenuItem>
    </>
  );
}

function secondsUntilTomorrow(): number {
  const morning = new Date();
  morning.setDate(morning.getDate() + 1);
  morning.setHours(8, 0, 0, 0);
  return (morning.getTime() - Date.now()) / 1000;
}
