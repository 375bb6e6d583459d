/** Events on their way to the screen: at most 200 together, and four times a second when more than 50 a second come. */

import type { Event } from '../api/types';

const MOST_AT_ONCE = 200;
const SOON_MS = 16;
const BUSY_MS = 250;
const BUSY_RATE = 50;

export class EventQueue {
  private waiting: Event[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private windowBegan = 0;
  private inWindow = 0;

  constructor(
    private readonly apply: (events: Event[]) => void,
    private readonly behind: (count: number) => void,
  ) {}

  push(event: Event): void {
    this.waiting.push(event);
    this.count();
    this.timer ??= setTimeout(() => this.flush(), this.isBusy() ? BUSY_MS : SOON_MS);
  }

  stop(): void {
    clearTimeout(this.timer);
    this.waiting = [];
  }

  private flush(): void {
    const batch = this.waiting.splice(0, MOST_AT_ONCE);
    const left = this.waiting.length;
    this.timer = left > 0 ? setTimeout(() => this.flush(), SOON_MS) : undefined;
    this.behind(left);
    this.apply(batch);
  }

  private count(): void {
    const now = Date.now();
    if (now - this.windowBegan > 1000) {
      this.windowBegan = now;
      this.inWindow = 0;
    }
    this.inWindow += 1;
  }

  private isBusy(): boolean {
    return this.inWindow > BUSY_RATE;
  }
}
