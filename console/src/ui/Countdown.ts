export * from '@toolpost/approval-card/ui/Countdown';
