// Package backendtest is the conformance suite of package backend. [Run] compares every operation
// with a plain float64 reference. It also checks exactness: a row of a result has the same bits
// alone and in any batch, with aligned and misaligned weights, in chunks and as a whole. [Same]
// compares two backends bit by bit, such as one with one thread and one with four.
//
// The suite compares a backend's gradients with finite differences.
//
// It uses only the interface, so it also runs on device memory.
package backendtest

import (
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
)

// suite lists the subtests of Run.
var suite = []struct {
	name string
	test func(*env)
}{
	{"Memory", testMemory},
	{"Errors", testErrors},
	{"Embed", testEmbed},
	{"Norm", testNorm},
	{"Linear", testLinear},
	{"LinearRowsAlone", testLinearRowsAlone},
	{"LinearLayouts", testLinearLayouts},
	{"LinearNonFinite", testLinearNonFinite},
	{"LinearRounded", testLinearRounded},
	{"LinearRoundedAlone", testLinearRoundedAlone},
	{"Products", testProducts},
	{"Quantised", testQuantised},
	{"QuantisedRounded", testQuantisedRounded},
	{"QuantisedPrompts", testQuantisedPrompts},
	{"QuantisedNaN", testQuantisedNaN},
	{"QuantisedErrors", testQuantisedErrors},
	{"Rope", testRope},
	{"Attention", testAttention},
	{"AttentionChunks", testAttentionChunks},
	{"AttentionSharedPages", testAttentionSharedPages},
	{"AttentionLong", testAttentionLong},
	{"AttentionNonFinite", testAttentionNonFinite},
	{"AttentionRelative", testAttentionRelative},
	{"Gate", testGate},
	{"GateExtremes", testGateExtremes},
	{"Rows", testRows},
	{"Scale", testScale},
	{"Route", testRoute},
	{"RouteTies", testRouteTies},
	{"ShortConv", testShortConv},
	{"DeltaRule", testDeltaRule},
	{"StateSpace", testStateSpace},
	{"StateErrors", testStateErrors},
	{"LinearGrad", testLinearGrad},
	{"NormGrad", testNormGrad},
	{"RopeGrad", testRopeGrad},
	{"AttentionGrad", testAttentionGrad},
	{"GateGrad", testGateGrad},
	{"ShortConvGrad", testShortConvGrad},
	{"DeltaRuleGrad", testDeltaRuleGrad},
	{"StateSpaceGrad", testStateSpaceGrad},
	{"SelectiveScanGrad", testSelectiveScanGrad},
	{"GatedLRUGrad", testGatedLRUGrad},
	{"WKVGrad", testWKVGrad},
	{"PoolGrad", testPoolGrad},
	{"AlternatingGrad", testAlternatingGrad},
	{"StreamsGrad", testStreamsGrad},
	{"StatesOfGradients", testStatesOfGradients},
	{"RowsGrad", testRowsGrad},
	{"RouteGrad", testRouteGrad},
	{"CrossEntropy", testCrossEntropy},
	{"Measure", testMeasure},
	{"Softmax", testSoftmax},
	{"Conv2D", testConv2D},
	{"Pool2D", testPool2D},
}

// Run tests the backend that open returns. Each subtest opens and closes its own backend. without
// names subtests to leave out, for operations that the backend does not have. If the backend lacks
// other operations, the test fails.
func Run(t *testing.T, open func() backend.Backend, without ...string) {
	for _, c := range suite {
		if slices.Contains(without, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t, open())
			defer e.close()
			c.test(e)
		})
	}
}

// Same runs a program of all operations on both backends and compares the results bit by bit.
func Same(t *testing.T, a, b backend.Backend) {
	t.Helper()
	x, y := newEnv(t, a), newEnv(t, b)
	p, q := program(x), program(y)
	for name, want := range p {
		sameBits(t, name, q[name], want)
	}
	if len(p) == 0 {
		t.Error("the program gave no results")
	}
}
