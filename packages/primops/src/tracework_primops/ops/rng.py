"""Random numbers. By default library calls on the device's default generator, in graph order, so that values equal eager's."""

from ..op import Kind, Tag, declarer

op = declarer("rng", Kind.LIBRARY, Tag.RANDOM)

op("rand(sizes, dtype, device)", "uniform in [0, 1)")
op("randn(sizes, dtype, device)", "standard normal")
op("randint(low, high, sizes, dtype, device)", "integers in [low, high)")
op("randperm(n, dtype, device)", "a permutation of n integers")
op("bernoulli(p:T)", "1 with probability p, else 0; p's dtype")
op("bernoulli_p(x:T, p)", "like x: 1 with probability p (a number), else 0")
op("uniform(x:T, low=0.0, high=1.0)", "like x: uniform in [low, high)")
op("normal(x:T, mean=0.0, std=1.0)", "like x: normal")
op("exponential(x:T, rate=1.0)", "like x: exponential")
op("geometric(x:T, p)", "like x: geometric")
op("cauchy(x:T, median=0.0, sigma=1.0)", "like x: Cauchy")
op("log_normal(x:T, mean=1.0, std=2.0)", "like x: exp of a normal")
op("poisson(x:T)", "Poisson with rate x")
op("binomial(count:T, prob:T)", "successes in count trials")
op("multinomial(x:T, num_samples, replacement=False)", "indices drawn with weights x")
op("native_dropout(x:T, p) -> 2", "x*mask/(1-p) and the mask (bool), eager's own kernel")
op("rrelu_noise(x:T, lower, upper)", "slopes for negative x, 1 elsewhere")
