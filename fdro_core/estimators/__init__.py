"""The scikit-learn estimators; `fdro_core.sklearn` is where users import them from.

In the order in which one would read:

- `classifier` and `regressor` say what is minimised, and turn labels and targets into it and back;
- `estimator` is what they share: settings, the ways to solve, the table of groups;
- `groups` has the samples' groups and the models over them, `group_set` the set that the settings describe;
- `conformal` puts sets and intervals around any fitted model;
- `central` minimises with all data in one place, to a proved gap.
"""
