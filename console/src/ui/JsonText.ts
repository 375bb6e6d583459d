export * from '@toolpost/approval-card/ui/JsonText';
