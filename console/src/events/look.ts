/** How each type of event looks, and what it says. A type that is not here is shown by its name. */

import {
  AccountIcon,
  AgainIcon,
  AgentIcon,
  ApprovedIcon,
  ArtifactIcon,
  AskIcon,
  CloseIcon,
  DangerIcon,
  DoneIcon,
  FailureIcon,
  KeyIcon,
  NowIcon,
  PersonIcon,
  QuestionIcon,
  RuleIcon,
  SettingsIcon,
  SourceIcon,
  ToolIcon,
  TryIcon,
  type Icon,
} from '../ui/icons';
import type { Tone } from '../ui/tone';
import { words } from '../words';

export interface EventLook {
  icon: Icon;
  tone: Tone;
  /** The words after the name of the tool, the source or the person. */
  says: string;
}

const says = words.events;

const LOOKS: Record<keyof typeof says, [Icon, Tone]> = {
  MESSAGE_RECEIVED: [AgentIcon, 'idle'],
  MESSAGE_SENT: [AgentIcon, 'idle'],
  TURN_FAILED: [FailureIcon, 'fail'],
  TASK_CREATED: [AgentIcon, 'idle'],
  TASK_STARTED: [AgentIcon, 'run'],
  TASK_SUSPENDED: [AskIcon, 'wait'],
  TASK_RESUMED: [AgentIcon, 'run'],
  TASK_COMPLETED: [DoneIcon, 'ok'],
  TASK_FAILED: [FailureIcon, 'fail'],
  TASK_NOTIFY: [AgentIcon, 'idle'],
  REASON_DONE: [AgentIcon, 'idle'],
  STEPS_REFLECTED: [AgentIcon, 'idle'],
  REFLECTION_COMPLETE: [AgentIcon, 'idle'],
  REFLECTION_FAILED: [FailureIcon, 'fail'],
  NEED_MORE_INFO: [QuestionIcon, 'wait'],
  TOOL_CALL_REQUESTED: [NowIcon, 'idle'],
  TOOL_CALL_STARTED: [TryIcon, 'run'],
  TOOL_CALL_COMPLETED: [DoneIcon, 'ok'],
  TOOL_CALL_FAILED: [CloseIcon, 'fail'],
  APPROVAL_REQUESTED: [AskIcon, 'wait'],
  APPROVAL_GRANTED: [ApprovedIcon, 'ok'],
  APPROVAL_DENIED: [AskIcon, 'fail'],
  CALL_PAUSED: [QuestionIcon, 'wait'],
  CALL_RESUMED: [TryIcon, 'run'],
  QUESTION_EXPIRED: [CloseIcon, 'idle'],
  CALL_RETRIED: [AgainIcon, 'wait'],
  FALLBACK_USED: [AgainIcon, 'wait'],
  BREAKER_OPENED: [DangerIcon, 'fail'],
  BREAKER_CLOSED: [SourceIcon, 'ok'],
  CATALOG_CHANGED: [ToolIcon, 'idle'],
  SOURCE_UP: [SourceIcon, 'ok'],
  SOURCE_DOWN: [SourceIcon, 'fail'],
  SOURCE_LOGGED: [SourceIcon, 'idle'],
  DEFINITION_CHANGED: [RuleIcon, 'wait'],
  CONFIG_APPLIED: [SettingsIcon, 'ok'],
  CONFIG_REFUSED: [SettingsIcon, 'fail'],
  DATABASE_RESTORED: [SettingsIcon, 'wait'],
  ACCOUNT_CONNECTED: [AccountIcon, 'ok'],
  ACCOUNT_DISCONNECTED: [AccountIcon, 'idle'],
  CALLER_KEY_CREATED: [KeyIcon, 'idle'],
  CALLER_KEY_REVOKED: [KeyIcon, 'idle'],
  APPROVAL_ESCALATED: [AskIcon, 'wait'],
  TICKET_REFUSED: [PersonIcon, 'fail'],
  SESSION_CREATED: [PersonIcon, 'idle'],
  SESSION_ENDED: [PersonIcon, 'idle'],
  SUBAGENT_ACTION: [TryIcon, 'run'],
  ARTIFACT_STORED: [ArtifactIcon, 'idle'],
};

export function lookOfEvent(type: string): EventLook {
  if (!(type in LOOKS)) return { icon: NowIcon, tone: 'idle', says: type };
  const known = type as keyof typeof says;
  const [icon, tone] = LOOKS[known];
  return { icon, tone, says: says[known] };
}
