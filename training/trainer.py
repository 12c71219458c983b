"""The GRPO trainer: TRL's own, with one part per idea."""

from __future__ import annotations

from trl import GRPOTrainer

from training.card import OwnCard
from training.checked_rewards import CheckedRewards
from training.dynamic_sampling import DynamicSampling
from training.held_out import HeldOutScore
from training.image_cache import DecodeOnce
from training.prefix import SharedPrefix
from training.resume import StrictResume
from training.sampling import SharedPrefill
from training.stages import StagedRewards
from training.task_log import TaskLog
from training.verification import SelfVerification
from training.vllm_rollouts import VllmRollouts


class SpatialGRPOTrainer(
    SharedPrefix,  # outermost: sees generation batches as the parts below leave them
    DynamicSampling,
    StagedRewards,
    DecodeOnce,
    SharedPrefill,
    SelfVerification,  # its verdicts are a column that the rewards below read
    TaskLog,
    CheckedRewards,  # innermost: nothing that is wrong with a reward gets beyond it
    HeldOutScore,
    VllmRollouts,
    StrictResume,
    OwnCard,
    GRPOTrainer,
):
    """TRL's GRPOTrainer and its keyword arguments, plus those of each part."""
