from __future__ import annotations

import numpy as np
import pytest

from app.listening.report.comparisons import wilcoxon
from app.listening.report.findings import least_listeners
from app.listening.report.power import LEVEL


@pytest.mark.parametrize("tests", [1, 3, 10, 45])
def test_from_the_least_number_of_listeners_a_difference_can_be_found(tests):
    least = least_listeners(tests)
    for listeners, is_found in ((least - 1, False), (least, True)):
        p = wilcoxon(np.arange(listeners).astype(np.float64) + 1)
        assert (p * tests < LEVEL) == is_found
