"""Errors in the form of OpenAI's API."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

from nanobot_core import (
    BudgetExceeded,
    ContextTooLong,
    JsonObject,
    LimitError,
    NanobotError,
    NoProvider,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    Unreachable,
)

INTERNAL: Final = "nanobot failed; the owner finds the details in its log"


class Failure(BaseModel):
    """What a client reads about a request that failed.

    Attributes:
        status: HTTP status.
        message: what happened and what to do.
        type: family of the error.
        code: name of the error, or ``None``.
        param: field of the request that is wrong, or ``None``.
        retry_after_s: seconds after which the request may succeed, or ``None``.
        may_retry: clients may send the same request again by themselves.
    """

    model_config = ConfigDict(frozen=True)

    status: int
    message: str
    type: str = "invalid_request_error"
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None
    may_retry: bool = True

    def to_json(self) -> JsonObject:
        """Return the body of the response."""
        error: JsonObject = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


class ApiError(NanobotError):
    """A request is not answered; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        self.failure: Failure = failure
        super().__init__(failure.message)


def refuse(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the error for a request that has to be changed."""
    return ApiError(Failure(status=400, message=message, param=param, code=code))


def unknown_model(model: str) -> ApiError:
    """Return the error for a model that does not exist, or that the key may not use."""
    message = f"the model '{model}' does not exist or this key may not use it; see GET /v1/models"
    return ApiError(Failure(status=404, message=message, param="model", code="model_not_found"))


def quota_used_up(message: str) -> ApiError:
    """Return the error for a budget that is used up."""
    return ApiError(
        Failure(
            status=429,
            message=message,
            type="insufficient_quota",
            code="insufficient_quota",
            may_retry=False,
        )
    )


def too_many(message: str, retry_after_s: float) -> ApiError:
    """Return the error for a client that sends too many requests."""
    return ApiError(
        Failure(
            status=429,
            message=message,
            type="rate_limit_exceeded",
            code="rate_limit_exceeded",
            retry_after_s=retry_after_s,
        )
    )


def unavailable(message: str) -> ApiError:
    """Return the error for a server that cannot answer at the moment."""
    return ApiError(Failure(status=503, message=message, type="server_error"))


def failed(message: str, *, status: int = 500, code: str | None = None) -> Failure:
    """Return the failure of a request that had begun, so that it must not be repeated blindly."""
    return Failure(status=status, message=message, type="server_error", code=code, may_retry=False)


def failure_of(error: NanobotError, model: str) -> Failure:
    """Return the failure for an error of a model call."""
    text = str(error)
    match error:
        case ApiError():
            return error.failure
        case NoProvider():
            return unknown_model(model).failure
        case BudgetExceeded() | LimitError():
            return quota_used_up(text).failure
        case ContextTooLong():
            return refuse(text, param="messages", code="context_length_exceeded").failure
        case RateLimited():
            wait_s = error.retry_after_s or 1.0
            return too_many(text, wait_s).failure.model_copy(update={"may_retry": False})
        case ProviderTimeout() | Overloaded() | Unreachable():
            return failed(text, status=503)
        case ProviderError() if error.status in {400, 404, 422}:
            return refuse(text).failure
        case _:
            return failed(text)
