export * from '@toolpost/approval-card/ui/Time';
