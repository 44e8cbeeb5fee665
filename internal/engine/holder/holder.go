// Package holder lets Heft's own packages reach the engine of a public model.
//
// generate.Model is public and its engine is not, so no exported method can return it. The package
// of the model registers how to get and set the engine here; api's metrics get it, and tests set
// one with a fake model.
package holder

import "github.com/heftai/heft/internal/engine"

var (
	get func(model any) *engine.Engine
	set func(model any, e *engine.Engine)
)

// Register sets the functions that get and set a model's engine. The package of the model calls
// it once.
func Register(g func(model any) *engine.Engine, s func(model any, e *engine.Engine)) { get, set = g, s }

// Engine returns the engine of a *generate.Model.
func Engine(model any) *engine.Engine { return get(model) }

// SetEngine sets the engine of a *generate.Model. Call it before its first request.
func SetEngine(model any, e *engine.Engine) { set(model, e) }
