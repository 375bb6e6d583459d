/** The objects of the API by their names. */

import type { CardExtras } from './provisional';
import type { components } from './schema';

type Schemas = components['schemas'];

export type Account = Schemas['Account'];
export type Answer = Schemas['Answer'];
export type Artifact = Schemas['Artifact'];
export type Card = Schemas['Card'] & Omit<CardExtras, keyof Schemas['Card']>;
export type Event = Schemas['Event'];
export type CallerKey = Schemas['Key'];
export type Explanation = Schemas['Explanation'];
export type Policy = Schemas['Policy'];
export type PolicyRule = Schemas['PolicyRule'];
export type Me = Schemas['Me'];
export type OpenedSession = Schemas['OpenedSession'];
export type Outcome = Schemas['Outcome'];
export type OutcomeNotKept = Schemas['OutcomeNotKept'];
export type Run = Schemas['Run'];
export type SessionEntry = Schemas['Sessions']['items'][number];
export type Source = Schemas['Source'];
export type Stats = Schemas['Stats'];
export type Tool = Schemas['Tool'];
