"""The test kit: doubles, fixtures and the contracts of plugins as test suites.

Names are imported when first used, because the pytest plugin is loaded in every test run of an
environment, also in those that have nothing to do with nanobot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core.lazy import lazy_names

if TYPE_CHECKING:
    from nanobot_core.testing.anthropic_server import (
        AnthropicServer as AnthropicServer,
        anthropic_error as anthropic_error,
    )
    from nanobot_core.testing.bus import (
        BusContract as BusContract,
        DurableBusContract as DurableBusContract,
    )
    from nanobot_core.testing.channel import (
        ChannelContract as ChannelContract,
        ChannelPlatform as ChannelPlatform,
        RecordingInbox as RecordingInbox,
    )
    from nanobot_core.testing.clock import FakeClock as FakeClock
    from nanobot_core.testing.context import (
        FakeGateway as FakeGateway,
        FakePluginContext as FakePluginContext,
        FakeToolSet as FakeToolSet,
    )
    from nanobot_core.testing.day import ChannelDay as ChannelDay
    from nanobot_core.testing.description import (
        Finding as Finding,
        description_findings as description_findings,
    )
    from nanobot_core.testing.fake_provider import (
        FakeProvider as FakeProvider,
        FakeReply as FakeReply,
        FakeStep as FakeStep,
    )
    from nanobot_core.testing.gateway import (
        GatewayProcess as GatewayProcess,
        SkippingClock as SkippingClock,
    )
    from nanobot_core.testing.gemini_server import GeminiServer as GeminiServer
    from nanobot_core.testing.http_faults import (
        HTTP_FAULTS as HTTP_FAULTS,
        HTTPFaultContract as HTTPFaultContract,
    )
    from nanobot_core.testing.http_provider import HTTPProviderContract as HTTPProviderContract
    from nanobot_core.testing.loopback import (
        LocalRequest as LocalRequest,
        LocalResponse as LocalResponse,
        Loopback as Loopback,
    )
    from nanobot_core.testing.memory import (
        MemoryContract as MemoryContract,
        ServiceContract as ServiceContract,
        TranscriberContract as TranscriberContract,
    )
    from nanobot_core.testing.model_server import (
        ModelServer as ModelServer,
        RecordedRequest as RecordedRequest,
        Reply as Reply,
        Responder as Responder,
        ScriptedCall as ScriptedCall,
        pieces as pieces,
    )
    from nanobot_core.testing.openai_server import OpenAIServer as OpenAIServer, echo as echo
    from nanobot_core.testing.playing import (
        PlayedDay as PlayedDay,
        ScriptedModel as ScriptedModel,
        played_day as played_day,
    )
    from nanobot_core.testing.plugin import PluginContract as PluginContract
    from nanobot_core.testing.provider import (
        ProviderContract as ProviderContract,
        ServedProvider as ServedProvider,
        ServiceBehaviour as ServiceBehaviour,
    )
    from nanobot_core.testing.recording import (
        RecordedCall as RecordedCall,
        Recording as Recording,
        RecordingUnusable as RecordingUnusable,
        call_line as call_line,
        header_line as header_line,
        read_recording as read_recording,
    )
    from nanobot_core.testing.replay import (
        Replay as Replay,
        ReplayedCall as ReplayedCall,
        Replayer as Replayer,
    )
    from nanobot_core.testing.responses_server import ResponsesServer as ResponsesServer
    from nanobot_core.testing.session_store import SessionStoreContract as SessionStoreContract
    from nanobot_core.testing.stand_in import (
        Abilities as Abilities,
        ChatFile as ChatFile,
        Person as Person,
        Refusal as Refusal,
        Shown as Shown,
        StandIn as StandIn,
        StandInPlatform as StandInPlatform,
        answers as answers,
        load_stand_in as load_stand_in,
        transcript as transcript,
    )
    from nanobot_core.testing.strict_dialect import (
        StrictService as StrictService,
        irregularity as irregularity,
        strict_dialects as strict_dialects,
        strict_rules as strict_rules,
    )
    from nanobot_core.testing.suite import ConformanceSuite as ConformanceSuite
    from nanobot_core.testing.tool import (
        ToolContract as ToolContract,
        call_in as call_in,
        output_findings as output_findings,
        output_text as output_text,
    )
    from nanobot_core.testing.tool_schema import definition_findings as definition_findings

if not TYPE_CHECKING:  # type checkers take the imports above for the list
    _HOMES, __getattr__, __dir__ = lazy_names(
        "nanobot_core.testing",
        {
            "anthropic_server": "AnthropicServer anthropic_error",
            "bus": "BusContract DurableBusContract",
            "channel": "ChannelContract ChannelPlatform RecordingInbox",
            "clock": "FakeClock",
            "context": "FakeGateway FakePluginContext FakeToolSet",
            "day": "ChannelDay",
            "description": "Finding description_findings",
            "fake_provider": "FakeProvider FakeReply FakeStep",
            "gateway": "GatewayProcess SkippingClock",
            "gemini_server": "GeminiServer",
            "http_faults": "HTTP_FAULTS HTTPFaultContract",
            "http_provider": "HTTPProviderContract",
            "loopback": "LocalRequest LocalResponse Loopback",
            "memory": "MemoryContract ServiceContract TranscriberContract",
            "model_server": "ModelServer RecordedRequest Reply Responder ScriptedCall pieces",
            "openai_server": "OpenAIServer echo",
            "playing": "PlayedDay ScriptedModel played_day",
            "plugin": "PluginContract",
            "provider": "ProviderContract ServedProvider ServiceBehaviour",
            "recording": (
                "RecordedCall Recording RecordingUnusable call_line header_line read_recording"
            ),
            "replay": "Replay ReplayedCall Replayer",
            "responses_server": "ResponsesServer",
            "session_store": "SessionStoreContract",
            "stand_in": (
                "Abilities ChatFile Person Refusal Shown StandIn StandInPlatform answers "
                "load_stand_in transcript"
            ),
            "strict_dialect": "StrictService irregularity strict_dialects strict_rules",
            "suite": "ConformanceSuite",
            "tool": "ToolContract call_in output_findings output_text",
            "tool_schema": "definition_findings",
        },
    )
    __all__ = sorted(_HOMES)
