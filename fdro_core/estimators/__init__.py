"""The scikit-learn estimators; `fdro_core.sklearn` is where users import them from.

In the order in which one would read:

- `classifier` and `regressor` say what is minimised, and turn labels and targets into it and back;
- `estimator` is what they share, with the `settings`; `labels` reads the samples' groups, `group_set` makes
  the set that the settings describe, `tables` are what `summary()` returns;
- `pooling` has the training problem, with shared coefficients or coefficients by group, over the models of
  `groups`;
- `held_out` trains on folds and chooses radius and pooling, `diagnosis` judges the fit by them;
- `conformal` puts sets and intervals around any fitted model;
- `central` minimises with all data in one place, to a proved gap.
"""
