package tensor_test

import (
	"fmt"

	"github.com/heftai/heft/train/tensor"
)

// Four micro batches of y = w·x add up to the gradient of one big batch: w steps to 2.04
// either way.
func ExampleTape_Backward() {
	x := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	y := []float32{2, 4, 6, 8, 10, 12, 14, 16}
	tape := tensor.NewTape(tensor.Options{})
	step := func(batch int) float32 {
		w := tensor.NewParameter([]float32{0}, 1, 1)
		windows := len(x) / batch
		for i := 0; i < len(x); i += batch {
			out := tape.Linear(tape.Input(x[i:i+batch], batch, 1), tape.Use(w), nil)
			loss := tape.MSE(out, tape.Input(y[i:i+batch], batch, 1), tensor.Mean)
			if err := tape.Backward(loss, 1/float32(windows)); err != nil {
				fmt.Println(err)
			}
		}
		return w.Data()[0] - 0.02*w.Grad()[0]
	}
	fmt.Printf("w/ accumulation, the final weight is %.5f\n", step(2))
	fmt.Printf("w/o accumulation, the final weight is %.5f\n", step(8))
	// Output:
	// w/ accumulation, the final weight is 2.04000
	// w/o accumulation, the final weight is 2.04000
}

// A loss is summed and divided by the number of labels of the whole step, so that
// batches of different lengths weigh their tokens alike.
func ExampleTape_CrossEntropy() {
	w := tensor.NewParameter([]float32{-0.007486820220947266, 0.5364435911178589}, 2, 1)
	tape := tensor.NewTape(tensor.Options{})
	const items = 36 // labels in all micro batches
	for n := 1; n <= 8; n++ {
		var x []float32
		var labels []int
		for i := 1; i <= n; i++ {
			x, labels = append(x, float32(i)), append(labels, i%2)
		}
		logits := tape.Linear(tape.Input(x, n, 1), tape.Use(w), nil)
		loss := tape.CrossEntropy(logits, labels, tensor.CrossEntropyOptions{Items: items})
		if err := tape.Backward(loss, 1); err != nil {
			fmt.Println(err)
		}
	}
	for i := range w.Data() {
		w.Data()[i] -= 0.08 * w.Grad()[i]
	}
	fmt.Printf("%.4f\n", w.Data())
	// Output: [0.0953 0.4337]
}

// A language model of 3 tokens predicts the next token of two texts from one number per position. LinearCrossEntropy
// computes the loss of CausalLoss without holding the logits of all positions, which a large vocabulary makes big.
func ExampleTape_LinearCrossEntropy() {
	ids := []int{0, 1, 2, 1, 2, 2}
	hidden := []float32{1, -1, 0.5, 2, 0, -0.5}
	tape := tensor.NewTape(tensor.Options{})
	o := tensor.CrossEntropyOptions{}
	whole := func(w *tensor.Parameter) *tensor.Tensor {
		logits := tape.Linear(tape.Input(hidden, 6, 1), tape.Use(w), nil)
		return tape.CausalLoss(tape.Reshape(logits, 2, 3, 3), ids, o)
	}
	fused := func(w *tensor.Parameter) *tensor.Tensor {
		return tape.LinearCrossEntropy(tape.Input(hidden, 6, 1), tape.Use(w), tensor.ShiftLabels(ids, 3, o), o)
	}
	for _, loss := range []func(*tensor.Parameter) *tensor.Tensor{whole, fused} {
		w := tensor.NewParameter([]float32{0, 0, 0}, 3, 1)
		l := loss(w)
		value := l.Data()[0]
		if err := tape.Backward(l, 1); err != nil {
			fmt.Println(err)
		}
		fmt.Printf("loss %.4f, gradient %.4f\n", value, w.Grad())
	}
	// Output:
	// loss 1.0986, gradient [0.1667 -0.0833 -0.0833]
	// loss 1.0986, gradient [0.1667 -0.0833 -0.0833]
}
