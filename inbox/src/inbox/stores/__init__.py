"""Where a consumer keeps which messages it has handled."""
