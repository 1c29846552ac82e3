"""torch.distributions: probability distributions, transforms of them, and their divergences."""

from __future__ import annotations

from skimp._compat.finder import join as _join
from skimp._engine.dispatch.docstrings import complete_classes as _complete
from skimp.distributions import constraints, relaxed_bernoulli, relaxed_categorical, transforms
from skimp.distributions.bernoulli import Bernoulli
from skimp.distributions.beta import Beta
from skimp.distributions.binomial import Binomial
from skimp.distributions.categorical import Categorical
from skimp.distributions.cauchy import Cauchy
from skimp.distributions.chi2 import Chi2
from skimp.distributions.constraint_registry import biject_to, transform_to
from skimp.distributions.continuous_bernoulli import ContinuousBernoulli
from skimp.distributions.dirichlet import Dirichlet
from skimp.distributions.distribution import Distribution
from skimp.distributions.exp_family import ExponentialFamily
from skimp.distributions.exponential import Exponential
from skimp.distributions.fishersnedecor import FisherSnedecor
from skimp.distributions.gamma import Gamma
from skimp.distributions.generalized_pareto import GeneralizedPareto
from skimp.distributions.geometric import Geometric
from skimp.distributions.gumbel import Gumbel
from skimp.distributions.half_cauchy import HalfCauchy
from skimp.distributions.half_normal import HalfNormal
from skimp.distributions.independent import Independent
from skimp.distributions.inverse_gamma import InverseGamma
from skimp.distributions.kl import kl_divergence, register_kl
from skimp.distributions.kumaraswamy import Kumaraswamy
from skimp.distributions.laplace import Laplace
from skimp.distributions.lkj_cholesky import LKJCholesky
from skimp.distributions.log_normal import LogNormal
from skimp.distributions.logistic_normal import LogisticNormal
from skimp.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from skimp.distributions.mixture_same_family import MixtureSameFamily
from skimp.distributions.multinomial import Multinomial
from skimp.distributions.multivariate_normal import MultivariateNormal
from skimp.distributions.negative_binomial import NegativeBinomial
from skimp.distributions.normal import Normal
from skimp.distributions.one_hot_categorical import (
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from skimp.distributions.pareto import Pareto
from skimp.distributions.poisson import Poisson
from skimp.distributions.relaxed_bernoulli import RelaxedBernoulli
from skimp.distributions.relaxed_categorical import RelaxedOneHotCategorical
from skimp.distributions.studentT import StudentT
from skimp.distributions.transformed_distribution import TransformedDistribution
from skimp.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)
from skimp.distributions.uniform import Uniform
from skimp.distributions.von_mises import VonMises
from skimp.distributions.weibull import Weibull
from skimp.distributions.wishart import Wishart

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "CatTransform",
    "Categorical", "Cauchy", "Chi2", "ComposeTransform", "ContinuousBernoulli",
    "CorrCholeskyTransform", "CumulativeDistributionTransform", "Dirichlet", "Distribution",
    "ExpTransform", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma",
    "GeneralizedPareto", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent",
    "IndependentTransform", "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal",
    "LogisticNormal", "LowRankMultivariateNormal", "LowerCholeskyTransform", "MixtureSameFamily",
    "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "PositiveDefiniteTransform",
    "PowerTransform", "RelaxedBernoulli", "RelaxedOneHotCategorical", "ReshapeTransform",
    "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform",
    "StickBreakingTransform", "StudentT", "TanhTransform", "Transform", "TransformedDistribution",
    "Uniform", "VonMises", "Weibull", "Wishart", "biject_to", "constraints", "identity_transform",
    "kl_divergence", "register_kl", "transform_to", "transforms",
]  # fmt: skip
for _names in (globals(), vars(relaxed_bernoulli), vars(relaxed_categorical)):
    _complete(_names)
_join()
