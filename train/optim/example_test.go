package optim_test

import (
	"fmt"
	"log"

	"github.com/heftai/heft/train/optim"
)

// Two steps of SGD with momentum on one parameter.
func ExampleNewSGD() {
	w := &optim.VectorParam{Value: []float32{1, 2}}
	sgd, err := optim.NewSGD([]optim.Param{w}, optim.SGDOptions{LR: 0.1, Momentum: 0.9})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		w.Gradient = []float32{1, -1}
		if err := sgd.Step(); err != nil {
			log.Fatal(err)
		}
		sgd.ZeroGrad()
	}
	fmt.Printf("%.2f\n", w.Value)
	// Output: [0.71 2.29]
}

// A schedule by its name in transformers: the rate rises for two steps and falls for four.
func ExampleNewScheduler() {
	sgd, err := optim.NewSGD([]optim.Param{&optim.VectorParam{Value: []float32{0}}}, optim.SGDOptions{LR: 1})
	if err != nil {
		log.Fatal(err)
	}
	warm, total := 2, 6
	schedule, err := optim.NewScheduler(sgd, optim.ScheduleSpec{Name: "linear", WarmupSteps: &warm, TrainingSteps: &total})
	if err != nil {
		log.Fatal(err)
	}
	for range total {
		fmt.Print(schedule.LastLR()[0], " ")
		if err := sgd.Step(); err != nil {
			log.Fatal(err)
		}
		if err := schedule.Step(); err != nil {
			log.Fatal(err)
		}
	}
	// Output: 0 0.5 1 0.75 0.5 0.25
}

// ClipNorm bounds the norm of all gradients together.
func ExampleClipNorm() {
	w := &optim.VectorParam{Value: make([]float32, 2), Gradient: []float32{3, 4}}
	norm := optim.ClipNorm([]optim.Param{w}, 1, 2)
	fmt.Printf("%.1f %.1f\n", norm, w.Gradient)
	// Output: 5.0 [0.6 0.8]
}
