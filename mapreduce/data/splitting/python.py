"""``mapreduce.split``: :func:`mapreduce.data.splitting.split`, whose errors name keywords."""

from inspect import signature

from mapreduce.data import splitting
from mapreduce.support.spelling import in_words_of_python

split = in_words_of_python({*signature(splitting.split).parameters})(splitting.split)
