// Nothing to simulate: the root complex's model only needs a simulator's clock to run on.
`timescale 1ns/1ps
module top;
endmodule
