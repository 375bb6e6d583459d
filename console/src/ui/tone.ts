export * from '@toolpost/approval-card/ui/tone';
