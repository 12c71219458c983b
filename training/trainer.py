"""The GRPO trainer: TRL's own, with one part per idea."""

from __future__ import annotations

from trl import GRPOTrainer

from training.card import OwnCard
from training.resume import StrictResume
from training.rollouts.image_cache import DecodeOnce
from training.rollouts.sampling import SharedPrefill
from training.rollouts.vllm_rollouts import VllmRollouts
from training.schedule.dynamic_sampling import DynamicSampling
from training.schedule.stages import StagedRewards
from training.scoring.checked_rewards import CheckedRewards
from training.scoring.held_out import HeldOutScore
from training.scoring.task_log import TaskLog
from training.update.prefix import SharedPrefix
from training.verification.self_verification import SelfVerification


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
