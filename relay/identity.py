"""The address and the identity of a service without a connection string; azure-identity is imported only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.settings import Connection, Identity

if TYPE_CHECKING:
    from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential


def by_identity(connection: Connection) -> tuple[str, DefaultAzureCredential | ManagedIdentityCredential]:
    """The address of a service, and a credential for it."""
    if connection.address is None or connection.identity is None:
        raise ValueError("a connection has either a connection string, or an address and an identity")
    return connection.address, credential_of(connection.identity)


def credential_of(identity: Identity) -> DefaultAzureCredential | ManagedIdentityCredential:
    """A credential of this identity. Nothing is asked for yet."""
    from azure.identity.aio import (
        DefaultAzureCredential,
        ManagedIdentityCredential,
    )

    if identity.managed:
        return ManagedIdentityCredential(client_id=identity.client_id)
    return DefaultAzureCredential(managed_identity_client_id=identity.client_id)
