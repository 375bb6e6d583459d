export * from '@toolpost/approval-card/ui/ToolName';
