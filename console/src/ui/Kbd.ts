export * from '@toolpost/approval-card/ui/Kbd';
