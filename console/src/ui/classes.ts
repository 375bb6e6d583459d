export * from '@toolpost/approval-card/ui/classes';
