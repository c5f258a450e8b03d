// Package bench is lockbench's engine: users race for rows under a strategy, what they were told is kept, and an
// audit compares it with what the database holds.
//
// Three interfaces meet here. A [Scenario] says what is read and decided, in plain Go, and knows nothing about locking. A
// [Strategy] says how that read and that write are protected, and owns every word of SQL. A [Store] owns the database.
// The engine knows none of their implementations: it imports the standard library and hdrhistogram only.
package bench
