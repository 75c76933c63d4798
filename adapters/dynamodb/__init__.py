"""Workflows in one DynamoDB table."""
