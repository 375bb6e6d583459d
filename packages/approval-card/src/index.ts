/** The public API of the approval card. */

export { ApprovalCard, type ApprovalCardProps } from './ApprovalCard';
export { measureClock } from './format/clock';
export { Preview } from './previews/Preview';
export { toolUiPayload, type ToolUiApproval } from './tool-ui';
export type { Answer, PendingAction, PreviewData } from './types';
export { Foreign } from './ui/Foreign';
