"""Train a network: mappers compute gradients, reducers add them up and step.

builds on  filter_gradient.py; docs/rounds.md puts gradient_naive.py beside it
adds       rounds as steps of one job, rows and parameters in files, a tree that fixes the last bit
next       predict.py
run me     gradreduce data digits demo/data
           python jobs/train.py -r parallel --run demo/run --model mlp:64 --epochs 20 \\
               --eval demo/data/test demo/data/train

A batch is what a round maps over: --batch-size 0 for all rows, 128 of them by default.
In the order of the calls: models/softmax.py has the mathematics of a slice, kernels/cpu/softmax.py
its loops, reduction/tree.py the order in which slices are added, optim/ the step; strategies/ say
who does what.
"""

from pathlib import Path

from mapreduce.parts import EXECUTION, PLAN, PROFILE, ChainJob, start_training


class Train(ChainJob):
    """The steps of a round, with the options of ``gradreduce train``."""

    def configure_args(self):
        """mrjob's options, and those that decide the result."""
        super().configure_args()
        add = self.arg_parser.add_argument
        add("--run", type=Path, help="folder of the run, which must not exist")
        add("--eval", type=Path, dest="evaluation", help="dataset to evaluate on")
        add("--dry-run", action="store_true", help="show the plan, and do nothing")
        add("--json", action="store_true", dest="as_json", help="one JSON object on stdout")
        for option in (*PLAN, *EXECUTION, PROFILE):
            if option.flag not in self.arg_parser._option_string_actions:
                text = option.help.replace("%", "%%")
                if option.type is bool:
                    add(option.flag, action="store_true", help=text)
                    continue
                more = {"type": option.parse, "choices": option.choices or None}
                add(option.flag, default=option.default, help=text, **more)

    # mapper: range of slices -> (block, partial sum of their gradients)
    def map_range(self, units, _):
        """Compute the gradient of each slice, and add up neighbours along the tree."""
        yield from super().map_range(units, _)

    # reducer: (block, partial sums) -> ranges of slices for the next round's mappers
    def end_round(self, completed, phase, block, partials):
        """Add up all partial sums of a block, step, and publish it for the next round."""
        yield from super().end_round(completed, phase, block, partials)

    def run_job(self):
        """Drive the rounds: many jobs of many steps, checkpoints and evaluations between them."""
        values = dict(vars(self.options))
        if len(self.options.args) != 1 or not self.options.run:
            self.arg_parser.error("expected the folder of a dataset, and --run")
        values |= {"data": Path(self.options.args[0]), "runner": values["runner"] or "inline"}
        start_training(values, type(self))


if __name__ == "__main__":
    Train.run()
