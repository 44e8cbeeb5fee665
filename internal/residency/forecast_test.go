package residency

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// see records uses and returns how many of them a certain forecast expected.
func (f *forecast) see(uses ...int) (right int) {
	for _, x := range uses {
		if list, _ := f.coming(1); f.certain() && len(list) == 1 && list[0] == x {
			right++
		}
		f.used(x)
	}
	return right
}

// aStep is the order of uses in a step: forwards, backwards, and an update in another order.
var aStep = []int{0, 1, 2, 3, 4, 5, 4, 3, 2, 1, 0, 10, 0, 11, 1, 12, 2, 13, 3, 14, 4, 15, 5}

// TestAForecastLearnsARepeatedOrder: in the order, items are used several times, after different
// ones.
func TestAForecastLearnsARepeatedOrder(t *testing.T) {
	var f forecast
	if f.see(aStep...); f.certain() {
		t.Error("certain after a step")
	}
	f.see(aStep...)
	for step := range 3 {
		if right := f.see(aStep...); right != len(aStep) {
			t.Errorf("step %d: expected %d uses of %d", step, right, len(aStep))
		}
	}
	f.see(aStep[:3]...) // 0 1 2
	list, first := f.coming(9)
	if want := aStep[3:12]; !slices.Equal(list, want) {
		t.Errorf("got %v, want %v", list, want)
	}
	for _, x := range []int{3, 4, 2, 15} {
		if got, want := f.next(x)-first, slices.Index(aStep[3:], x); got != want {
			t.Errorf("%d is next used in %d uses, want %d", x, got, want)
		}
	}
	if f.next(99) != never {
		t.Error("expected a thing that was not used yet")
	}
}

// TestAForecastOfNoOrderIsNotCertain.
func TestAForecastOfNoOrderIsNotCertain(t *testing.T) {
	var f forecast
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		if f.used(r.IntN(40)); f.certain() {
			t.Fatalf("certain after %d random uses", i)
		}
	}
}

// TestAForecastFollowsAChangedOrder: after one additional or missing use, the forecast is certain
// again within the step. It also learns another order.
func TestAForecastFollowsAChangedOrder(t *testing.T) {
	var f forecast
	for range 3 {
		f.see(aStep...)
	}
	without, with := slices.Delete(slices.Clone(aStep), 8, 9), slices.Insert(slices.Clone(aStep), 8, 77)
	for _, step := range [][]int{without, aStep, with, aStep} {
		if right := f.see(step...); right <= len(step)/2 {
			t.Errorf("expected %d uses of %v", right, step)
		}
	}
	back := slices.Clone(aStep)
	slices.Reverse(back)
	if right := f.see(back...); right > len(back)/2 {
		t.Errorf("another order: expected %d uses of %d", right, len(back))
	}
	f.see(back...)
	if right := f.see(back...); right != len(back) {
		t.Errorf("the same order again: expected %d uses of %d", right, len(back))
	}
}

// TestAForecastForgets: the forecast forgets old uses, and stays certain.
func TestAForecastForgets(t *testing.T) {
	var f forecast
	f.see(50, 51, 50)
	for range 3 {
		f.see(aStep...)
	}
	for n := 0; n < 2*mostLogged; n += len(aStep) {
		if right := f.see(aStep...); right != len(aStep) {
			t.Fatalf("after %d uses: expected %d of %d", n, right, len(aStep))
		}
	}
	noted := 0
	for _, uses := range f.uses {
		noted += len(uses)
	}
	if _, ok := f.last[[2]int{50, 51}]; ok || f.next(51) != never || len(f.log) > mostLogged || noted != len(f.log) {
		t.Errorf("remembers %d uses, %d by thing; the first pair: %v", len(f.log), noted, ok)
	}
}
