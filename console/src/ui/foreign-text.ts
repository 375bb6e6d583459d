export * from '@toolpost/approval-card/ui/foreign-text';
