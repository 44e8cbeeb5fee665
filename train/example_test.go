package train_test

import (
	"context"
	"fmt"

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
