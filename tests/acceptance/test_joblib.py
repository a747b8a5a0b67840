"""joblib and scikit-learn, unchanged, with their calls as jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.instance import Instance, running

joblib = pytest.importorskip("joblib", reason="the group `clients` is not installed: joblib is not tested")
pytest.importorskip("sklearn", reason="the group `clients` is not installed: scikit-learn is not tested")

import pilotage.joblib  # noqa: E402, F401  # registers the backend


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("joblib"), idle=60) as one, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PILOTAGE_HOME", str(one.home))
        yield one


def test_delayed_calls_are_jobs(instance: Instance) -> None:
    with joblib.parallel_config("pilotage", memory="200 MB"):
        assert joblib.Parallel(n_jobs=-1)(joblib.delayed(pow)(x, 2) for x in range(50)) == [
            x * x for x in range(50)
        ]
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel(n_jobs=-1)(joblib.delayed(divmod)(1, x) for x in (1, 0, 2))
    jobs = list(instance.client().jobs())
    assert jobs
    assert instance.client().job(jobs[0].id).description["memory"] == 200


def test_a_grid_search_finds_what_it_finds_alone(instance: Instance) -> None:
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    features, kinds = load_iris(return_X_y=True)
    grid = {"C": [0.1, 10], "kernel": ["linear", "rbf"]}
    alone = GridSearchCV(SVC(), grid, cv=3).fit(features, kinds)
    before = instance.client().counts().total
    with joblib.parallel_config("pilotage", n_jobs=-1):
        found = GridSearchCV(SVC(), grid, cv=3).fit(features, kinds)
    assert found.best_params_ == alone.best_params_
    assert list(found.cv_results_["mean_test_score"]) == list(alone.cv_results_["mean_test_score"])
    assert instance.client().counts().total > before
