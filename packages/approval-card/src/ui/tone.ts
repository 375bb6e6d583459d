/** What a colour means: `ok` is well, `wait` waits for a person, `taint` is untrusted content. */
export type Tone = 'ok' | 'wait' | 'fail' | 'run' | 'taint' | 'idle';
