import { BASE_URL } from '../../api/address';

/** The address of a card, for a chat. */
export function linkTo(id: string): string {
  return `${BASE_URL}/approvals/${encodeURIComponent(id)}`;
}
