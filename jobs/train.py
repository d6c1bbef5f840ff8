"""Train a network: mappers compute gradients, reducers add them up and step.

builds on  gradient_naive.py; docs/rounds.md puts both side by side
adds       rounds as steps of one job, rows and parameters in files, a tree that fixes the last bit
run me     gradreduce data digits demo/data
           python jobs/train.py -r parallel --run demo/run --model mlp:64 --epochs 20 \\
               --eval demo/data/test demo/data/train

A batch is what a round maps over: --batch-size 0 for all rows, 128 of them if nothing is said.
In the order of the calls: models/softmax.py has the mathematics of a slice, kernels/cpu/softmax.py
its loops, collect/tree.py the order in which slices are added, optim/ the step; strategies/ say who
does what.
"""

from pathlib import Path

from mapreduce import options
from mapreduce.cli.train import start
from mapreduce.executors.chain import ChainJob


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
        for option in (*options.PLAN, *options.EXECUTION, options.PROFILE):
            if option.flag not in self.arg_parser._option_string_actions:
                choices = option.choices or None
                add(
                    option.flag,
                    type=option.type,
                    default=option.default,
                    choices=choices,
                    help=option.help,
                )

    # mapper: reference of some slices -> (block, partial sum of their gradients)
    def map_gradients(self, reference, _):
        """Compute the gradient of each slice, and add up neighbours along the tree."""
        yield from super().map_gradients(reference, _)

    # reducer: (block, partial sums) -> references for the next round's mappers
    def update_block(self, block, partials):
        """Add up all partial sums of a block, step, and publish it for the next round."""
        yield from super().update_block(block, partials)

    def run_job(self):
        """Drive the rounds: many jobs of many steps, checkpoints and evaluations between them."""
        values = vars(self.options)
        if len(self.options.args) != 1 or not self.options.run:
            self.arg_parser.error("expected the folder of a dataset, and --run")
        start({**values, "data": Path(self.options.args[0])}, type(self))


if __name__ == "__main__":
    Train.run()
