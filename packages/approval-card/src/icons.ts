/** The icons of a card, by their meaning. */
export {
  Bot as AgentIcon,
  Check as DoneIcon,
  ChevronsUpDown as UnfoldIcon,
  CircleHelp as UnknownIcon,
  Clock as ClockIcon,
  Droplet as UntrustedIcon,
  FileDiff as FileIcon,
  Hand as AskIcon,
  Link as AccountIcon,
  Lock as BoundIcon,
  MessageCircleQuestion as QuestionIcon,
  Pencil as WritesIcon,
  RotateCw as AgainIcon,
  Send as SendsIcon,
  ShieldAlert as RuleIcon,
  Terminal as CommandIcon,
  X as CloseIcon,
} from 'lucide-react';
export type { LucideIcon as Icon } from 'lucide-react';
