package train_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// One step of four batches of two, for y = w·x with a bare parameter as the model.
func ExampleAccelerator_Accumulate() {
	ctx := context.Background()
	model := tensor.NewParameter([]float32{0}, 1, 1)
	sgd, err := optim.NewSGD(train.Params(model), optim.SGDOptions{LR: 0.02})
	if err != nil {
		fmt.Println(err)
		return
	}
	var opt optim.Optimizer = sgd
	loader, err := data.NewLoader(data.Slice[float32]{1, 2, 3, 4, 5, 6, 7, 8}, data.Samples[float32], data.Options{BatchSize: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	acc, err := train.New(train.Config{GradientAccumulationSteps: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := acc.Prepare(model, &opt, loader); err != nil {
		fmt.Println(err)
		return
	}
	tape := tensor.NewTape(tensor.Options{})
	for x, err := range loader.All(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		err = acc.Accumulate(ctx, func(ctx context.Context) error {
			in := tape.Input(x, len(x), 1)
			loss := tape.MSE(tape.Linear(in, tape.Use(model), nil), tape.Scale(in, 2), tensor.Mean)
			if err := acc.Backward(ctx, loss); err != nil {
				return err
			}
			if err := opt.Step(); err != nil {
				return err
			}
			opt.ZeroGrad()
			return nil
		}, model)
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Printf("w/ accumulation, the final model weight is %.5f\n", model.Data()[0])
	// Output: w/ accumulation, the final model weight is 2.04000
}

// Every rank has a part of the predictions; the repeated ones are dropped.
func ExampleGatherForMetrics() {
	err := train.Launch(context.Background(), 2, func(ctx context.Context, w *train.World) error {
		acc, err := train.New(train.Config{World: w})
		if err != nil {
			return err
		}
		loader, err := data.NewLoader(data.Slice[int]{10, 11, 12, 13, 14}, data.Samples[int], data.Options{BatchSize: 2})
		if err != nil {
			return err
		}
		if err := acc.Prepare(loader); err != nil {
			return err
		}
		for batch, err := range loader.All(ctx) {
			if err != nil {
				return err
			}
			all, err := train.GatherForMetrics(ctx, acc, batch)
			if err != nil {
				return err
			}
			if acc.IsMainProcess() {
				fmt.Println(all)
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [10 11 12 13]
	// [14]
}

// A Trainer runs the loop: epochs, schedule, evaluation, callbacks.
func ExampleNewTrainer() {
	numbers := data.Slice[float32]{1, 2, 3, 4, 5, 6, 7, 8}
	load := func() *data.Loader[[]float32] {
		l, err := data.NewLoader(numbers, data.Samples[float32], data.Options{BatchSize: 2})
		if err != nil {
			log.Fatal(err)
		}
		return l
	}
	model := tensor.NewParameter([]float32{0}, 1, 1) // learns y = 2x
	sgd, err := optim.NewSGD(train.Params(model), optim.SGDOptions{LR: 0.01})
	if err != nil {
		log.Fatal(err)
	}
	acc, err := train.New(train.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	tape := tensor.NewTape(tensor.Options{})
	trainer, err := train.NewTrainer(train.TrainerConfig[[]float32]{
		Accelerator: acc, Model: model, Optimizer: sgd, Train: load(), Eval: load(),
		ComputeLoss: func(_ context.Context, x []float32) (*tensor.Tensor, error) {
			in := tape.Input(x, len(x), 1)
			return tape.MSE(tape.Linear(in, tape.Use(model), nil), tape.Scale(in, 2), tensor.Mean), nil
		},
		Callbacks: []train.Callback{train.OnEvent(train.Evaluated, func(_ context.Context, m *train.Moment) error {
			_, err := fmt.Printf("epoch %v: loss %.3f\n", m.State.Epoch, m.Metrics["eval_loss"])
			return err
		})},
		Arguments: train.TrainingArguments{Epochs: 3, Schedule: "linear"},
	})
	if err != nil {
		log.Fatal(err)
	}
	result, err := trainer.Train(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.GlobalStep, "steps")
	// Output:
	// epoch 1: loss 0.308
	// epoch 2: loss 0.028
	// epoch 3: loss 0.016
	// 12 steps
}
