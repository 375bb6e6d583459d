export * from '@toolpost/approval-card/format/clock';
