export * from '@toolpost/approval-card/ui/Glyph';
