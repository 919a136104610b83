"""What tests of lakewright and of its users may import; never imported by the product."""
