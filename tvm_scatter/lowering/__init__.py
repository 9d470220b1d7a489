"""From a call of a scatter operator to a function of TVM's."""
