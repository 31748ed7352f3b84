"""Operations that read rows: queries, exports."""
