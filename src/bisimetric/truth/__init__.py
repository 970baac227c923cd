"""The truth table of learned metrics: losses on finite MDPs, against their own fixed points and the certified metric.

settings    sizes (quick, full), and what is compared
claims      what is asked, and the rules that decide
"""
