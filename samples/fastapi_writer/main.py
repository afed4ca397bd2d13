"""Take orders, and store each with its events in one transaction. Run it with `uvicorn main:app`."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, TypedDict

from azure.cosmos.aio import ContainerProxy, CosmosClient
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, PositiveInt

from outbox_relay.outbox import DomainEntity, DomainEvent, OutboxError, UnitOfWork


@dataclass(frozen=True)
class OrderPlaced(DomainEvent):
    item: str
    quantity: int


@dataclass(frozen=True)
class OrderCancelled(DomainEvent):
    item: str
    quantity: int


@dataclass
class Order(DomainEntity):
    item: str
    quantity: int
    cancelled: bool = False

    def created_event(self) -> OrderPlaced:
        return OrderPlaced(self.item, self.quantity)

    def cancel(self) -> None:
        if self.cancelled:
            raise ValueError("The order is cancelled already.")
        self.cancelled = True
        self.add_event(OrderCancelled(self.item, self.quantity))


class State(TypedDict):
    container: ContainerProxy


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[State, None]:
    async with CosmosClient.from_connection_string(os.environ["COSMOS"]) as client:
        yield {"container": client.get_database_client("outbox").get_container_client("data")}


app = FastAPI(title="Orders", lifespan=lifespan)


@app.exception_handler(OutboxError)
async def refuse(request: Request, error: OutboxError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=error.http_status)


async def unit_of_work(request: Request) -> AsyncGenerator[UnitOfWork, None]:
    async with UnitOfWork(request.state.container) as work:
        yield work


Work = Annotated[UnitOfWork, Depends(unit_of_work)]


class NewOrder(BaseModel):
    item: str
    quantity: PositiveInt


@app.put("/orders/{order_id}", status_code=201)
async def place(order_id: str, new: NewOrder, work: Work) -> None:
    work.repository(Order).create(Order(new.item, new.quantity, id=order_id))
    await work.commit()  # the order and OrderPlaced, or neither


@app.post("/orders/{order_id}/cancellation", status_code=204)
async def cancel(order_id: str, work: Work) -> None:
    order = await work.repository(Order).read(order_id)
    try:
        order.cancel()
    except ValueError as error:
        raise HTTPException(409, str(error)) from error
    await work.commit()  # the order and OrderCancelled, unless somebody else has changed the order meanwhile
