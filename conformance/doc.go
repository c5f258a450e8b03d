// Package conformance holds the tests that every strategy must pass on every scenario. They are loops over the registries: a new
// strategy or scenario is tested here without a line of its own.
package conformance
