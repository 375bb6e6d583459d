export * from '@toolpost/approval-card/ui/Foreign';
