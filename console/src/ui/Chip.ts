export * from '@toolpost/approval-card/ui/Chip';
