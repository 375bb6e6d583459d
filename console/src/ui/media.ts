export * from '@toolpost/approval-card/ui/media';
